package attach

import "regexp"

// queries are the sequences that a terminal answers by typing: device attributes, status and position reports, mode and
// colour requests. In a replay they are old, and an answer would be typed into whatever runs now.
var queries = regexp.MustCompile(`\x1b\[[>=]?[0-9;]*c|\x1b\[\??[0-9;]*n|\x1b\[>[0-9;]*q|\x1b\[\??[0-9;]*\$p|\x1b\[[0-9;]*t|` +
	`\x1b\](?:4;[0-9]+|1[0-9]|5[0-9]*[^\x07\x1b]*);\?(?:\x07|\x1b\\)|\x1bP(?:\+q|\$q)[^\x1b]*\x1b\\|\x1bZ|\x05`)

// withoutQueries removes them from a piece of a replay.
func withoutQueries(p []byte) []byte { return queries.ReplaceAll(p, nil) }
