package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// lvText is an LV of one extent as lvm(8) writes it down.
const lvText = `
%[1]s {
id = "bench0-0000-0000-0000-0000-0000-%06[2]d"
status = ["READ", "WRITE", "VISIBLE"]
flags = []
tags = ["pillar-volume=%[3]s"]
segment_count = 1
segment1 {
start_extent = 0
extent_count = 1
type = "striped"
stripe_count = 1
stripes = ["pv0", %[2]d]
}
}`

// makeVolumes makes LVs as the agent marks them, all at once: in the metadata's text.
func makeVolumes(ctx context.Context, count int) error {
	path := filepath.Join(os.TempDir(), "bench.vg")
	if _, err := programs.Run(ctx, "vgcfgbackup", "-f", path, group); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var lvs strings.Builder
	for i := range count {
		fmt.Fprintf(&lvs, lvText, volume(i), i, owner)
	}
	// The group's block ends with the last brace at the start of a line.
	end := strings.LastIndex(string(text), "\n}")
	if end < 0 {
		return fmt.Errorf("no end of the group in %q", text)
	}
	whole := string(text[:end]) + "\nlogical_volumes {" + lvs.String() + "\n}" + string(text[end:])
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"udevadm", "control", "--stop-exec-queue"}, // it would look into each for minutes
		{"vgcfgrestore", "--force", "-f", path, group},
		{"vgchange", "--activate", "y", group},
	} {
		if _, err := programs.Run(ctx, argv[0], argv[1:]...); err != nil {
			return err
		}
	}
	return nil
}
