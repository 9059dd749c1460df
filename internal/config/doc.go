// Package config reads every setting from one table: the fields of Config and their tags.
//
// The table drives loading, the checks that compare settings with each other, the redacted print-out and
// docs/configuration.md, so that what is documented is what is read. A process loads once, reports everything that
// is wrong at once, and never prints a value.
package config

//go:generate go run ../../cmd/worker check --config --markdown --output ../../docs/configuration.md
