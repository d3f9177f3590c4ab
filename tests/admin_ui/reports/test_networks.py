"""Networks of reports as drawings: each node below all that it reads, and no two in one place."""

from hypothesis import given
from hypothesis import strategies as st

from admin_ui.reports.networks import MOST_DRAWN, NODE_HEIGHT, draw_network
from control.jobs.report import GraphNode, NetworkGraph


@st.composite
def graphs(draw: st.DrawFn) -> NetworkGraph:
    nodes = []
    for number in range(draw(st.integers(1, 30))):
        reads = draw(st.lists(st.integers(-1, number + 1), max_size=3))
        nodes.append(GraphNode(draw(st.sampled_from(["Conv", "Relu", "Add"])), "", tuple(reads)))
    return NetworkGraph("g", tuple(nodes))


@given(graphs())
def test_nodes_lie_below_what_they_read_and_apart(graph: NetworkGraph) -> None:
    drawn = draw_network(graph)
    places = [(node.x, node.y) for node in drawn.nodes]
    assert len(set(places)) == len(graph.nodes)
    for number, one in enumerate(graph.nodes):
        for source in one.reads:
            if 0 <= source < number:
                assert places[source][1] + NODE_HEIGHT < places[number][1]
    assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in places)


def test_a_network_with_too_many_nodes_is_counted_and_not_drawn() -> None:
    nodes = tuple(GraphNode("Conv" if n % 3 else "Relu", "", ()) for n in range(MOST_DRAWN + 1))
    drawn = draw_network(NetworkGraph("g", nodes, 10))
    assert (list(drawn.nodes), drawn.total) == ([], MOST_DRAWN + 11)
    assert [name for name, _ in drawn.operators] == ["Conv", "Relu"]
