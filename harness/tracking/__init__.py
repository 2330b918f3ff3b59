"""MLflow: a view of the records that can be rebuilt from disk at any time. Nothing outside this package imports MLflow.

`content` says what a run holds, `writer` writes it once, `models` logs networks (`depth_search_classifier` inside),
`views` presets what a person sees first, `server` shows it.
"""

import os

# Before MLflow is imported. A server that does not answer may cost seconds, not MLflow's own seven retries (4 minutes).
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT": "30",
    "GIT_PYTHON_REFRESH": "quiet",
}.items():
    os.environ.setdefault(_name, _value)
