package zfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// mark is the user property that says whose a zvol is.
const mark = ourNamespace + "volume"

// errNoParent is a parent dataset that is not there, be it that its pool is not imported.
// It says nothing about volumes (B-204).
var errNoParent = fmt.Errorf("%w: parent dataset is not there", storage.ErrPrecondition)

// columns of zfs list, in the order of parseRow.
var columns = []string{"name", "type", "volsize", "volblocksize", "used", "available", "refreservation", "volmode", mark}

// report is a dataset as zfs(8) shows it, sizes in bytes.
type report struct {
	name        string // of the dataset, the pool included
	kind        string // "filesystem", "volume"
	size        int64  // volsize, 0 for a filesystem
	block       int64  // volblocksize
	used        int64
	available   int64
	reservation int64         // refreservation, 0: none
	mode        string        // volmode, "-" for a filesystem
	mark        storage.Owner // empty: none
}

func (r report) volume() bool { return r.kind == "volume" }

// list answers the parent and those of the volumes' datasets that are there. A dataset that
// is missing from the answer is one of which zfs says so, with its parent there when it did.
// It is errNoParent if the parent is not.
func (p *Pool) list(ctx context.Context, datasets ...string) (map[string]report, error) {
	asked := append([]string{p.cfg.parent()}, datasets...)
	argv := append([]string{"list", "-H", "-p", "-o", strings.Join(columns, ",")}, asked...)
	out, err := p.tool(ctx, "zfs", argv...)
	absent := map[string]bool{}
	if errors.Is(err, errAbsent) {
		if absent, err = absentOf(err, asked); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	found, err := parseRows(out)
	if err != nil {
		return nil, err
	}
	for _, dataset := range asked {
		if _, ok := found[dataset]; ok == absent[dataset] {
			return nil, fmt.Errorf("zfs list neither shows %s nor says it is absent, or both", dataset)
		}
	}
	if absent[p.cfg.parent()] {
		return nil, fmt.Errorf("%w: %s, or its pool is not imported", errNoParent, p.cfg.parent())
	}
	return found, nil
}

// absentOf answers the datasets that zfs list says are not there, one a line. Any other line
// makes it the failure it was.
func absentOf(err error, asked []string) (map[string]bool, error) {
	var exit *host.ExitError
	if !errors.As(err, &exit) {
		return nil, err
	}
	absent := map[string]bool{}
	for line := range strings.Lines(exit.Stderr) {
		name, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "cannot open '")
		if name, ok = cutSuffix(name, ok, "': dataset does not exist"); !ok || !slices.Contains(asked, name) {
			return nil, exit // no longer errAbsent
		}
		absent[name] = true
	}
	return absent, nil
}

func cutSuffix(s string, ok bool, suffix string) (string, bool) {
	s, found := strings.CutSuffix(s, suffix)
	return s, ok && found
}

// zvols reports the datasets directly below the parent.
func (p *Pool) zvols(ctx context.Context) ([]report, error) {
	out, err := p.tool(ctx, "zfs", "list", "-H", "-p", "-r", "-d", "1", "-t", "volume", "-o", strings.Join(columns, ","), p.cfg.parent())
	if errors.Is(err, errAbsent) {
		return nil, fmt.Errorf("%w: %w", errNoParent, err)
	}
	if err != nil {
		return nil, err
	}
	found, err := parseRows(out)
	return slices.Collect(maps.Values(found)), err
}

// parseRows parses zfs list -H -p: a dataset a line, its columns between tabs.
func parseRows(out []byte) (map[string]report, error) {
	found := map[string]report{}
	for line := range strings.Lines(string(out)) {
		r, err := parseRow(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("parse zfs list %q: %w", line, err)
		}
		found[r.name] = r
	}
	return found, nil
}

func parseRow(line string) (report, error) {
	fields := strings.Split(line, "\t")
	if len(fields) != len(columns) {
		return report{}, fmt.Errorf("%d columns, want %d", len(fields), len(columns))
	}
	r := report{name: fields[0], kind: fields[1], mode: fields[7]}
	if fields[8] != "-" {
		r.mark = storage.Owner(fields[8])
	}
	for i, to := range []*int64{&r.size, &r.block, &r.used, &r.available, &r.reservation} {
		text := fields[2+i]
		if text == "-" || text == "none" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return report{}, fmt.Errorf("%s %q is no size", columns[2+i], text)
		}
		*to = n
	}
	if r.name == "" || r.kind == "" || r.mode == "" || r.volume() && (r.size == 0 || r.block == 0) {
		return report{}, errors.New("a column is empty")
	}
	return r, nil
}
