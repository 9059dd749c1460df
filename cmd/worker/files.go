package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wakebus/wakebus/internal/bus"
	"github.com/wakebus/wakebus/internal/plan"
)

// fileFlags say whose file it is and by whose word.
type fileFlags struct{ tenant, user, tier, conversation, drive, grant string }

func (f *fileFlags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.tenant, "tenant", "dev", "tenant")
	fs.StringVar(&f.user, "user", "dev", "user, where no signed grant says it")
	fs.StringVar(&f.tier, "tier", string(plan.TierFree), "tier, where no signed grant says it")
	fs.StringVar(&f.conversation, "conversation", "default", "conversation, which owns the sandbox")
	fs.StringVar(&f.drive, "drive", "", "drive")
	fs.StringVar(&f.grant, "grant", "", "signed grant, in place of WAKEBUS_GRANT")
}

func (f *fileFlags) check(c *cli) (bus.Header, error) {
	if !plan.ValidToken(f.tenant) || !plan.ValidToken(f.conversation) {
		return nil, usage("--tenant and --conversation must be 1 to 64 letters, digits, _ or -")
	}
	hdr, err := c.grantHeader(f.grant, f.user, f.tier)
	if err != nil {
		return nil, usage("%w", err)
	}
	return hdr, nil
}

func newFilesCmd(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "files",
		Short:   "Read and write a sandbox's files",
		Example: "  worker files get report.csv report.csv --conversation c1\n  worker files put ./data.json /workspace/data.json --conversation c1",
	}
	cmd.AddCommand(newFilesGetCmd(c), newFilesPutCmd(c))
	return cmd
}

func newFilesGetCmd(c *cli) *cobra.Command {
	var f fileFlags
	cmd := &cobra.Command{
		Use:   "get PATH [LOCAL|-]",
		Short: "Read a file of a sandbox",
		Long: `Read a file of a sandbox, under /workspace, into a local file or to standard output, which is the default. A file that
is larger than one message is read in parts; one that changes meanwhile is refused.`,
		Example: "  worker files get report.csv report.csv --conversation c1",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hdr, err := f.check(c)
			if err != nil {
				return err
			}
			local := "-"
			if len(args) == 2 {
				local = args[1]
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			return c.getFile(cmd.Context(), b, f, hdr, args[0], local)
		},
	}
	f.bind(cmd)
	return cmd
}

// fileMoved is what get and put print with --json.
type fileMoved struct {
	Path   string `json:"path"`
	Local  string `json:"local"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

func (c *cli) getFile(ctx context.Context, b *bus.Bus, f fileFlags, hdr bus.Header, path, local string) error {
	if local == "-" {
		_, err := c.readParts(ctx, b, f, hdr, path, c.out)
		return leaveQuietly(closedOutput(err))
	}
	// Written beside and renamed, so that a failed transfer leaves no half file under the name.
	temp, err := os.CreateTemp(filepath.Dir(local), "."+filepath.Base(local)+"-*")
	if err != nil {
		return refused("write %s: %w", local, err)
	}
	defer os.Remove(temp.Name())
	size, err := c.readParts(ctx, b, f, hdr, path, temp)
	if err := errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp.Name(), local); err != nil {
		return refused("write %s: %w", local, err)
	}
	if c.flags.json {
		return c.printJSON(fileMoved{Path: path, Local: local, Size: size})
	}
	return nil
}

// readParts reads a file from its start to its end.
func (c *cli) readParts(ctx context.Context, b *bus.Bus, f fileFlags, hdr bus.Header, path string, to io.Writer) (int64, error) {
	var offset, size int64
	for {
		part, err := b.FileRead(ctx, f.tenant, hdr, bus.FileReadParams{ConversationID: f.conversation, DriveID: f.drive, Path: path, Offset: offset})
		if err != nil {
			return offset, c.fileError(path, err)
		}
		if offset > 0 && part.Size != size {
			return offset, refused("%s changed while it was read", path)
		}
		size = part.Size
		if _, err := to.Write(part.Data); err != nil {
			return offset, err
		}
		offset += int64(len(part.Data))
		if !part.Truncated || offset >= size || len(part.Data) == 0 {
			return offset, nil
		}
	}
}

func newFilesPutCmd(c *cli) *cobra.Command {
	var f fileFlags
	var mode string
	cmd := &cobra.Command{
		Use:     "put LOCAL|- PATH",
		Short:   "Write a file into a sandbox",
		Long:    "Write a local file, or standard input, into a sandbox, under /workspace; folders are made. It must fit one message.",
		Example: "  worker files put ./run.sh /workspace/run.sh --mode 0755 --conversation c1",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hdr, err := f.check(c)
			if err != nil {
				return err
			}
			b, _, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer b.Close()
			data, err := c.readLocal(args[0], b.MaxFileBytes())
			if err != nil {
				return err
			}
			written, err := b.FileWrite(cmd.Context(), f.tenant, hdr, bus.FileWriteParams{ConversationID: f.conversation, DriveID: f.drive,
				Path: args[1], Mode: mode}, data)
			if err != nil {
				return c.fileError(args[1], err)
			}
			if c.flags.json {
				return c.printJSON(fileMoved{Path: written.Path, Local: args[0], Size: written.Size, SHA256: written.SHA256})
			}
			return nil
		},
	}
	f.bind(cmd)
	cmd.Flags().StringVar(&mode, "mode", "0644", "permissions, octal")
	return cmd
}

// readLocal reads a file, or standard input, of at most limit bytes.
func (c *cli) readLocal(path string, limit int64) ([]byte, error) {
	in := c.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, refused("read %s: %w", path, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, refused("read %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, refused("%s is larger than one message takes (%d bytes)", path, limit)
	}
	return data, nil
}

// fileError says an endpoint's refusal with its reason's code.
func (c *cli) fileError(path string, err error) error {
	var answer *bus.EndpointError
	switch {
	case errors.As(err, &answer):
		return refused("%s: %s: %w", path, answer.Reason, answer)
	case errors.Is(err, bus.ErrNoReply):
		return refused("%s: no worker serves files", path)
	}
	return fmt.Errorf("%s: %w", path, err)
}
