"""The worker of offline jobs: told of jobs by Celery, it claims them, runs them and says how they
end."""
