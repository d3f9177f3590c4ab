"""Reports of jobs as pages: their plots and networks drawn, two of them compared."""
