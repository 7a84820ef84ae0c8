package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// unusedFor is how long an entry stays after its last use, so that going back to another
// branch within a week builds nothing.
const unusedFor = 7 * 24 * time.Hour

// touch notes a use of an entry as its modification time, which the build left meaningless.
func touch(dir string) error {
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err != nil {
		return fmt.Errorf("note the use of %s: %w", filepath.Base(dir), err)
	}
	return nil
}

// Prune removes what was not used for a week: of each kind (an artifact's name) all entries
// but the last used one, and what killed builds left. Call it when the entries of these
// kinds that the checkout needs were got.
func (c *Cache) Prune(kinds ...string) error {
	old, err := c.unused(".tmp-*", 0)
	for _, kind := range kinds {
		found, failed := c.unused(kind+"-"+strings.Repeat("[0-9a-f]", 12), 1)
		old, err = append(old, found...), errors.Join(err, failed)
	}
	for _, dir := range old {
		c.printf("removing %s from the cache, unused for a week", filepath.Base(dir))
		err = errors.Join(err, c.remove(dir))
	}
	if err != nil {
		return fmt.Errorf("prune the cache: %w", err)
	}
	return nil
}

// unused answers the entries of a pattern that nobody used for a week, without the keep
// last used ones.
func (c *Cache) unused(pattern string, keep int) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(c.Dir, pattern))
	if err != nil {
		return nil, err
	}
	used := map[string]time.Time{}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another build finished or pruned meanwhile
		}
		if err != nil {
			return nil, err
		}
		used[dir] = info.ModTime()
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return used[dir].IsZero() })
	slices.SortFunc(dirs, func(a, b string) int { return used[b].Compare(used[a]) })
	dirs = dirs[min(keep, len(dirs)):]
	return slices.DeleteFunc(dirs, func(dir string) bool { return time.Since(used[dir]) < unusedFor }), nil
}

// remove takes an entry away at once, then its files: half an entry is never found.
func (c *Cache) remove(dir string) error {
	tmp, err := os.MkdirTemp(c.Dir, ".tmp-pruned-")
	if err != nil {
		return err
	}
	err = os.Rename(dir, filepath.Join(tmp, "old"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // another build pruned it
	}
	return errors.Join(err, os.RemoveAll(tmp))
}
