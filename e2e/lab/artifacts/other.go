package artifacts

import "context"

// Artifact is an entry of the cache that another package makes, like the cluster's programs.
type Artifact struct {
	Name string   // file name before the key, and the name in progress lines
	Why  string   // what it is for, told when it is built
	Key  []string // everything that goes into it
	// Make fills the directory dir. It calls step before each part of the work; the last
	// one is told again while it lasts.
	Make func(ctx context.Context, dir string, step func(format string, args ...any)) error
}

// Get returns the artifact's directory, making it first if it is not there.
func (c *Cache) Get(ctx context.Context, a Artifact) (string, error) {
	return c.get(ctx, artifact{name: a.Name, why: a.Why, key: a.Key, make: func(ctx context.Context, b *builder) error {
		return a.Make(ctx, b.out, b.step)
	}})
}

// Package returns the path of a Debian package file in the cache, downloading it first if no
// version of it is there. A spec is NAME, NAME=VERSION or NAME/SUITE.
func (c *Cache) Package(ctx context.Context, spec string) (string, error) {
	return c.deb(ctx, spec)
}
