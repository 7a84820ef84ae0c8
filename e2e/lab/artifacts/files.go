package artifacts

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// writeFiles writes files below dir, path -> content, making their directories.
func writeFiles(dir string, files map[string]string) error {
	for path, content := range files {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// link makes a symbolic link unless something has the name already.
func link(target, path string) error {
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link %s: %w", path, err)
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
