"""Triton glue for `postprocess`: requests in, responses out. The arithmetic is in ranking.py."""

import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from .config import PostprocessConfig
from .labels import load_labels
from .ranking import ACTIVATIONS, rank
from .request_parameters import InvalidParameterError, RequestParameters


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.to_scores = ACTIVATIONS[PostprocessConfig.from_model_config(args["model_config"]).activation]
        logits = pb_utils.get_input_config_by_name(json.loads(args["model_config"]), "logits")
        self.classes = int(logits["dims"][0])
        self.labels = load_labels(Path(args["model_repository"], args["model_version"], "labels.txt"), self.classes)

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]  # one response per request, in order

    def _respond(self, request: Any) -> Any:
        try:
            parameters = RequestParameters.from_json(request.parameters(), self.classes)
            logits = pb_utils.get_input_tensor_by_name(request, "logits").as_numpy()
            errors = pb_utils.get_input_tensor_by_name(request, "error").as_numpy()
            return self._answer(logits, errors, parameters)
        except InvalidParameterError as error:
            return _failed(f"postprocess: {error}", pb_utils.TritonError.INVALID_ARG)
        except Exception:  # what leaves execute() would fail every request of the batch, not only this one
            pb_utils.Logger.log_error(traceback.format_exc())
            return _failed(
                "postprocess: internal: expected no failure, got one that the server's log shows",
                pb_utils.TritonError.INTERNAL,
            )

    def _answer(
        self, logits: npt.NDArray[np.float32], errors: npt.NDArray[np.object_], parameters: RequestParameters
    ) -> Any:
        """Logits (N, classes) and error (N, 1) to the four outputs, (N, top_k) each, and error (N, 1)."""
        errors = errors.copy()  # the request's own memory is not ours to write to
        for row in np.flatnonzero(~np.isfinite(logits).all(axis=1)):
            finite = np.isfinite(logits[row]).sum()
            errors[row, 0] = f"postprocess: not_finite: expected {self.classes} finite logits, got {finite}".encode()
        failed = np.array([bool(error) for error in errors[:, 0]])
        scores = self.to_scores(np.where(failed[:, None], np.float32(0), logits))
        class_id, score = rank(scores, parameters.top_k, parameters.threshold)
        class_id[failed], score[failed] = -1, 0
        outputs = {"class_id": class_id, "score": score, "label": self.labels[class_id], "error": errors}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])


def _failed(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
