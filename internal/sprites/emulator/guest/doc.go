// Package guest is one emulated machine: an init process that runs every
// command of a Sprite, and the handle by which the host talks to it.
//
// The init is this very binary started again (see MaybeInit). In namespace
// isolation it lives in its own user, mount, pid, network, ipc and uts
// namespaces behind a read-only root; in mapped isolation it is an ordinary
// child process that only adopts what its commands leave behind.
//
//	Start -> running <-> frozen
//	            |           |
//	            +--> gone <-+   (Close, or the init died)
//
// Linux only: everything here rests on namespaces or on /proc.
package guest
