package manual

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Command is `docs man DIR` for the tree that it is added to. version stands at the foot of each page; at is the pages'
// date, the zero time for today's (or SOURCE_DATE_EPOCH's).
func Command(program, version string, at time.Time) *cobra.Command {
	docs := &cobra.Command{
		Use: "docs", Short: "Write the manual pages",
		Example: "  " + program + " docs man ./man",
	}
	docs.AddCommand(&cobra.Command{
		Use: "man DIR", Short: "Write a manual page for each command into a folder",
		Long: "Write a manual page (section 1) for each command into a folder, which is made if it is not there. Install them where\n" +
			"man looks, such as /usr/local/share/man/man1.",
		Example: "  " + program + " docs man ./man && man ./man/" + program + ".1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return Write(cmd.Root(), args[0], version, at)
		},
	})
	return docs
}

// Write writes the pages of every command below root that is not hidden. It overwrites pages of an earlier version.
func Write(root *cobra.Command, dir, version string, at time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the manual pages: %w", err)
	}
	header := &doc.GenManHeader{Section: "1", Source: version, Manual: "Wakebus"}
	if !at.IsZero() {
		header.Date = &at
	}
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write the manual pages: %w", err)
	}
	return nil
}
