package main

import "context"

func (c *cli) check(ctx context.Context, f checkFlags) error { _ = ctx; _ = f; return nil }
