package configfstest

import "strings"

// Store implements configfs.FS.
func (k *Kernel) Store(name string, data []byte) (shown []byte, err error) {
	line := "set " + name + " " + strings.TrimSuffix(string(data), "\n")
	err = k.effect(line, func() (err error) {
		shown, err = k.FS.Store(name, data)
		return err
	})
	return shown, err
}
