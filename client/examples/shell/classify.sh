#!/bin/sh
# Classify image files with the Triton ensemble `pipeline`; needs curl 7.76 (of 2021) or newer, and no jq.
# Exit status: 0; 1 where a classification failed; 2 wrong usage.
set -u
export LC_ALL=C # awk reads and writes numbers with a point, and leaves the bytes of labels and file names alone

usage() {
  echo 'usage: classify.sh [-u http://127.0.0.1:8000] PHOTO...' >&2
  exit 2
}

# Send a JSON header that describes the input, then the file's bytes as they are. Asked in JSON, Triton answers in JSON;
# a raw upload, without the header, would be answered in binary. Request parameters can stand in the header too:
# {"parameters":{"top_k":3,"threshold":0.1},"inputs":...
infer() {
  size=$(($(wc -c <"$1")))
  header=$(printf '{"inputs":[{"name":"raw_image","datatype":"UINT8","shape":[1,%d],"parameters":{"binary_data_size":%d}}]}' \
    "$size" "$size")
  { printf '%s' "$header" && cat <"$1"; } |
    curl --silent --show-error --fail-with-body --max-time 30 --header "Inference-Header-Content-Length: ${#header}" \
      --data-binary @- "$url/v2/models/pipeline/infer"
}

# Print class, score and label from a reply, which is one line of JSON without spaces; its outputs come in any order.
# Fails where it is no such reply.
show() {
  awk '
    # Put the elements of the output called name into values, from 1 on, and return their number.
    function read_output(name, values,    rest, count) {
      rest = substr($0, index($0, "\"name\":\"" name "\""))
      rest = substr(rest, index(rest, "\"data\":[") + length("\"data\":["))
      while (match(rest, /^,?("([^"\\]|\\.)*"|[-+.0-9Ee]+)/)) {
        values[++count] = substr(rest, 1, RLENGTH)
        sub(/^,/, "", values[count])
        rest = substr(rest, RLENGTH + 1)
      }
      return count + 0
    }
    function unquoted(text) {
      text = substr(text, 2, length(text) - 2)
      gsub(/\\"/, "\"", text)
      gsub(/\\\\/, "\\", text)
      return text
    }
    {
      count = read_output("class_id", class_ids)
      if (count == 0 || read_output("score", scores) != count || read_output("label", labels) != count) exit 1
      for (i = 1; i <= count; i++)
        if (class_ids[i] != -1) printf "  %7.2f%%  %4d  %s\n", 100 * scores[i], class_ids[i], unquoted(labels[i])
    }'
}

# Print the classes of one photo, or to standard error why it has none.
classify() {
  if ! { [ -f "$1" ] && [ -r "$1" ]; }; then
    printf '%s: expected a file that can be read\n' "$1" >&2
  elif ! reply=$(infer "$1"); then
    printf '%s: %s\n' "$1" "${reply:-no answer from $url}" >&2
  elif ! classes=$(printf '%s\n' "$reply" | show); then
    printf '%s: expected the reply of a pipeline, got: %s\n' "$1" "$reply" >&2
  else
    printf '%s\n%s\n' "$1" "$classes"
    return 0
  fi
  return 1
}

url=http://127.0.0.1:8000
while getopts u: option; do
  case $option in
    u) url=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage

exit_status=0
for photo in "$@"; do
  classify "$photo" || exit_status=1
done
exit $exit_status
