// Package check reads what is deployed with the parsers that will read it there: compose's, BuildKit's, Kubernetes'. It is
// a module of its own, so that none of them is a dependency of Wakebus.
package check
