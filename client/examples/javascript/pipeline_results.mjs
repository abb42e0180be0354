/**
 * Turn the outputs of `pipeline`, [images, k] each and `error` [images, 1], into one result an image: its classes, the
 * highest score first, or the error for which it has none. Places where no class stands, class_id -1, are left out.
 */
export function readResults({ class_id, score, label, error }) {
  const [images, k] = class_id.shape;
  return Array.from({ length: images }, (_, image) => {
    const places = Array.from({ length: k }, (_, rank) => image * k + rank);
    const classes = places
      .filter((place) => class_id.data[place] !== -1)
      .map((place) => ({ classId: class_id.data[place], score: score.data[place], label: label.data[place] }));
    return { classes, error: error.data[image] };
  });
}
