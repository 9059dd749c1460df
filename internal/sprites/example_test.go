package sprites_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/wakebus/wakebus/internal/sprites"
	"github.com/wakebus/wakebus/internal/sprites/emulator"
)

// A command runs once in a sandbox that is made, locked down and warmed up on the way.
func Example() {
	if err := example(context.Background(), os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// hello from /workspace
	// exit 3
}

func example(ctx context.Context, out io.Writer) error {
	service, err := emulator.New(emulator.Config{}) // or the real one
	if err != nil {
		return err
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	defer service.Close()
	client, err := sprites.New(nil, sprites.Config{BaseURL: service.URL(), Token: service.Token()})
	if err != nil {
		return err
	}
	defer client.Close()
	box, err := client.Provision(ctx, sprites.ProvisionRequest{Name: "demo", Tenant: "dev", Create: true})
	if err != nil {
		return err
	}
	process, err := client.Start(ctx, sprites.Command{
		Sprite: "demo", Tenant: "dev", Guard: "dev.job-1.0", Job: "job-1",
		Shell: "echo hello from $PWD; exit 3", HasBash: box.HasBash, Limit: time.Minute,
	})
	if err != nil {
		return err
	}
	defer process.Close()
	for {
		chunk, err := process.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		_, _ = out.Write(chunk.Data)
	}
	exit, _ := process.Exit()
	fmt.Fprintln(out, "exit", exit.Code)
	return nil
}
