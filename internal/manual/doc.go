// Package manual writes the manual pages of a command tree.
package manual
