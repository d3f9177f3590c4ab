"""The rows of the API's table with their endpoints, one file per noun."""
