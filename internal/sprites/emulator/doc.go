// Package emulator is a local Sprites API: real commands in real processes, the
// wire protocol of the public documentation and the official SDKs, and faults
// on demand. It serves development, tests, the demo and benchmarks.
//
//	           any call into the machine
//	    +------------------------------------+
//	    v                                    |
//	+---------+   idle window    +------+    |
//	| running | ---------------> | warm | ---+   processes frozen, sockets dropped
//	+---------+   or Sleep       +------+    |
//	    |  ^                        |        |
//	    |  |   Cold, Kill           | ColdAfter
//	    |  |                        v        |
//	    |  +--------------------- +------+   |
//	    +-----------------------> | cold | --+   processes lost, files kept
//	                              +------+
//
// Every program that makes a Server must call MaybeInit as the first statement
// of main, and every test binary as the first of TestMain: the emulator starts
// its own binary again as the init of each Sprite.
//
// Tests steer it by methods, other processes by the admin routes, on the same
// port with the same token:
//
//	GET    /_emulator/calls                       the log of calls
//	GET    /_emulator/calls?count&route=G&sprite=G  how many ever matched (globs)
//	GET    /_emulator/sprites                     names, states, folders
//	GET    /_emulator/connections                 open WebSockets
//	POST   /_emulator/faults                      adds rules (see Fault)
//	DELETE /_emulator/faults                      removes all rules
//	POST   /_emulator/sprites/NAME/sleep|cold|kill
//
// What differs from the live service: no traffic leaves a machine, so network
// policies are stored but have nothing to stop; there is one user, so asRoot and
// sudo do nothing; Sprites have no public URL and no tasks API inside; each
// frame of an HTTP exec waits a few milliseconds for the one before.
//
// It listens on loopback only, with a random token. It isolates a Sprite's
// processes from the host by namespaces where the host allows it, which is
// meant for a developer's own code: do not run code there that you distrust.
package emulator

import "github.com/wakebus/wakebus/internal/sprites/emulator/guest"

// MaybeInit must be the first statement of every main and TestMain whose
// program makes a Server. In an ordinary start it returns at once; in a process
// that the emulator started as a Sprite's init it never returns. New fails with
// guest.ErrNotHooked where it was forgotten.
func MaybeInit() { guest.MaybeInit() }
