package main

import "github.com/wakebus/wakebus/internal/bus"

// history is where a client finds stored events.
func (c *cli) history(b *bus.Bus) bus.HistorySource { return b }
