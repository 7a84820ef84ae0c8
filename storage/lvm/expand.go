package lvm

import (
	"context"
	"fmt"

	"github.com/pillar-csi/pillar/storage"
)

// Expand implements storage.Backend with lvextend(8). What is inside the LV is not
// touched. The extents it gains are not wiped: by the time a retry could, they may hold
// data.
func (g *Group) Expand(ctx context.Context, name string, owner storage.Owner, bytes int64) (storage.Volume, error) {
	v, err := g.expand(ctx, name, owner, bytes)
	if err == nil {
		err = g.flush(ctx)
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("expand LV %s: %w", g.target(name), err)
	}
	return v, nil
}

func (g *Group) expand(ctx context.Context, name string, owner storage.Owner, bytes int64) (storage.Volume, error) {
	if bytes <= 0 {
		return storage.Volume{}, fmt.Errorf("%w: size of %d bytes", storage.ErrInvalid, bytes)
	}
	lv, err := g.usable(ctx, name, owner)
	if err != nil {
		return storage.Volume{}, err
	}
	room, err := g.room(ctx, lv.made())
	if err != nil {
		return storage.Volume{}, missing(err)
	}
	size, err := roundUp(bytes, room.extent)
	switch {
	case err != nil:
		return storage.Volume{}, err
	case size < lv.size:
		return storage.Volume{}, fmt.Errorf("%w: cannot shrink from %d to %d bytes", storage.ErrOutOfRange, lv.size, size)
	case size > lv.size:
		if err := room.take(size - lv.size); err != nil {
			return storage.Volume{}, err
		}
		if lv, err = g.extend(ctx, name, owner, size); err != nil {
			return storage.Volume{}, err
		}
	}
	if lv.active {
		_, err = g.settle(ctx, lv)
	}
	return g.volume(lv), err
}

// extend makes the LV larger and reads it back. --resizefs stays away: the filesystem is
// mounted on another machine.
func (g *Group) extend(ctx context.Context, name string, owner storage.Owner, size int64) (report, error) {
	if _, err := g.lvm(ctx, "lvextend", "--yes", "--size", fmt.Sprintf("%db", size), g.target(name)); err != nil {
		return report{}, missing(err)
	}
	lv, err := g.usable(ctx, name, owner)
	if err == nil && lv.size != size {
		err = fmt.Errorf("lvextend made %d bytes, asked for %d", lv.size, size)
	}
	return lv, err
}
