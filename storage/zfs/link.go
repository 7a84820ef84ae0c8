package zfs

import (
	"context"
	"fmt"
	"io/fs"
)

// Link makes the path of what has a volume's name lead to its device, without waiting for
// one. It is an fs.ErrNotExist if the kernel has none: then nothing has it open.
func (p *Pool) Link(ctx context.Context, name string) error {
	zvol, err := p.find(ctx, name)
	switch {
	case err != nil:
	case !zvol.volume():
		err = fmt.Errorf("a %s has no device: %w", zvol.kind, fs.ErrNotExist)
	default:
		err = p.nodes.linked(ctx, zvol)[zvol.name].Err
	}
	if err != nil {
		return fmt.Errorf("link zvol %s: %w", p.cfg.dataset(name), err)
	}
	return nil
}
