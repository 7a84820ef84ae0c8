package lvm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Link makes the path of what has a volume's name lead to its device, and proves that it
// does. It is an fs.ErrNotExist if the LV is not active: then nothing has it open.
func (g *Group) Link(ctx context.Context, name string) error {
	err := CheckName(name)
	var lv report
	if err == nil {
		lv, err = g.find(ctx, name)
	}
	switch {
	case err != nil:
	case !lv.active:
		err = fmt.Errorf("not active: %w", fs.ErrNotExist)
	default:
		if _, err = g.settle(ctx, lv); errors.Is(err, fs.ErrNotExist) {
			err = errors.New(err.Error()) // no node, but a device
		}
	}
	if err != nil {
		return fmt.Errorf("link LV %s: %w", g.target(name), err)
	}
	return nil
}
