"""Triton glue for `postprocess`: requests in, responses out. The arithmetic is in ranking.py."""

import asyncio  # noqa: F401  # the stub imports it in the first execute(), which takes 20 ms (python_backend, pb_stub.cc)
import json
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils

from .config import PostprocessConfig
from .labels import load_labels
from .metrics import BATCH_SIZES, Counter, Histogram, Publisher
from .ranking import ACTIVATIONS, rank
from .request_parameters import InvalidParameterError, RequestParameters


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.to_scores = ACTIVATIONS[PostprocessConfig.from_model_config(args["model_config"]).activation]
        logits = pb_utils.get_input_config_by_name(json.loads(args["model_config"]), "logits")
        self.classes = int(logits["dims"][0])
        self.labels = load_labels(Path(args["model_repository"], args["model_version"], "labels.txt"), self.classes)
        outcomes = ["ok", "not_finite", "invalid_parameter", "internal"]
        self.images = Counter("triton_classify_images_total", "Images by outcome", "outcome", outcomes)
        self.batch = Histogram("triton_classify_batch_images", "Images executed together", BATCH_SIZES)
        metrics: list[Counter | Histogram] = [self.images, self.batch]
        self.publisher = Publisher(metrics, args["model_name"], new_family, pb_utils.Logger.log_error)

    def finalize(self) -> None:
        self.publisher.stop()

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response per request, in order. What asks for the same is ranked together, which costs little more."""
        self.batch.observe(_count(requests))
        responses: dict[int, Any] = {}
        alike: dict[RequestParameters, list[int]] = {}
        for index, request in enumerate(requests):
            try:
                parameters = RequestParameters.from_json(request.parameters(), self.classes)
                alike.setdefault(parameters, []).append(index)
            except InvalidParameterError as error:
                self.images.add(_count([request]), "invalid_parameter")
                responses[index] = _failed(f"postprocess: {error}", pb_utils.TritonError.INVALID_ARG)
            except Exception:  # what leaves execute() would fail every request of the batch, not only this one
                self.images.add(_count([request]), "internal")
                responses[index] = _failed_inside()
        for parameters, indices in alike.items():
            answers = self._respond([requests[index] for index in indices], parameters)
            responses.update(zip(indices, answers, strict=True))
        return [responses[index] for index in range(len(requests))]

    def _respond(self, requests: list[Any], parameters: RequestParameters) -> list[Any]:
        try:
            logits, errors = _joined(requests, "logits"), _joined(requests, "error")
            outputs = self._rank(logits, errors, parameters)
        except Exception:
            self.images.add(_count(requests), "internal")
            return [_failed_inside() for _ in requests]
        responses, start = [], 0
        for request in requests:
            end = start + len(_tensor(request, "logits"))
            tensors = [pb_utils.Tensor(name, value[start:end]) for name, value in outputs.items()]
            responses.append(pb_utils.InferenceResponse(tensors))
            start = end
        return responses

    def _rank(
        self, logits: npt.NDArray[np.float32], errors: npt.NDArray[np.object_], parameters: RequestParameters
    ) -> dict[str, npt.NDArray[Any]]:
        """Logits (N, classes) and error (N, 1), both overwritten, to three outputs (N, top_k) and error (N, 1)."""
        not_finite = np.flatnonzero(~np.isfinite(logits).all(axis=1))
        for row in not_finite:
            finite = np.isfinite(logits[row]).sum()
            errors[row, 0] = f"postprocess: not_finite: expected {self.classes} finite logits, got {finite}".encode()
        failed = errors[:, 0].astype(bool)
        logits[failed] = 0
        class_id, score = rank(self.to_scores(logits), parameters.top_k, parameters.threshold)
        class_id[failed], score[failed] = -1, 0
        self.images.add(len(not_finite), "not_finite")
        self.images.add(len(failed) - int(failed.sum()), "ok")
        return {"class_id": class_id, "score": score, "label": self.labels[class_id], "error": errors}


def new_family(name: str, description: str) -> Any:
    return pb_utils.MetricFamily(name=name, description=description, kind=pb_utils.MetricFamily.COUNTER)


def _tensor(request: Any, name: str) -> npt.NDArray[Any]:
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()  # type: ignore[no-any-return]


def _joined(requests: list[Any], name: str) -> npt.NDArray[Any]:
    """A copy, also of one: the requests' own memory is not ours to write to."""
    return np.concatenate([_tensor(request, name) for request in requests])


def _count(requests: list[Any]) -> int:
    """Images."""
    return sum(len(_tensor(request, "logits")) for request in requests)


def _failed(message: str, code: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))


def _failed_inside() -> Any:
    """For the exception that is being handled."""
    pb_utils.Logger.log_error(traceback.format_exc())
    return _failed(
        "postprocess: internal: expected no failure, got one that the server's log shows",
        pb_utils.TritonError.INTERNAL,
    )
