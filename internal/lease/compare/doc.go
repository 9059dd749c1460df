// Package compare measures the lease beside the lock libraries for Redis. It is
// a module of its own, so that those are no dependencies of the project:
//
//	cd internal/lease/compare && go test -v -rounds 5 -period 2s
package compare
