package main

import (
	"bufio"
	"strings"
)

// askAbove is how many things may change without a question.
const askAbove = 10

// confirm asks before a change to more than askAbove things; anything but yes refuses.
func (c *cli) confirm(n int, yes bool, verb string) error {
	if n <= askAbove || yes {
		return nil
	}
	c.say("%s %d? Type yes to go on (or use --yes):", verb, n)
	line, err := bufio.NewReader(c.in).ReadString('\n')
	if strings.TrimSpace(line) != "yes" {
		if err != nil && line == "" {
			return refused("%s %d needs --yes", verb, n)
		}
		return refused("nothing was changed")
	}
	return nil
}
