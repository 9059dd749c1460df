// Command terminal-gw is the Wakebus terminal gateway, and a client of it for a real terminal. See `terminal-gw --help`.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), newCLI(), os.Args[1:]))
}
