"""Child processes of ours: started, watched, stopped, restarted; and how messages cross to them.

Workers of models, engines, the checker, the renderer of chat templates, the process that fetches an
import and the control process all stand on `child.ChildProcess`; what is said to them goes through
`channel.Channel`, or `message_child.MessageChild` where an event loop asks.
"""
