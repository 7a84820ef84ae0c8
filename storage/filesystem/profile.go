package filesystem

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// xfsProfile is the on-disk format every supported kernel mounts; xfsprogs ships it. It is
// not handed to mkfs.xfs with -c: mkfs refuses a key that is in the file and among the
// user's options, and the file of xfsprogs 6.1 (Debian 12) is refused altogether, because
// it has nrext64 in the wrong section.
const xfsProfile = "usr/share/xfsprogs/mkfs/lts_5.15.conf"

// sections are those of mkfs.xfs(8) configuration files and the flag each stands for.
var sections = map[string]string{
	"block": "-b", "data": "-d", "inode": "-i", "log": "-l", "metadata": "-m", "naming": "-n", "sector": "-s",
}

// profileOptions are the profile's settings as mkfs.xfs flags, without those that the
// user's options set.
func (t Tools) profileOptions(user []string) ([]string, error) {
	path := t.Root.Path(xfsProfile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("xfs profile: %w", err)
	}
	settings, err := parseProfile(string(text))
	if err != nil {
		return nil, fmt.Errorf("xfs profile %s: %w", path, err)
	}
	set := keysSet(user)
	var options []string
	for _, flag := range slices.Sorted(maps.Keys(settings)) {
		kept := slices.DeleteFunc(settings[flag], func(s string) bool {
			key, _, _ := strings.Cut(s, "=")
			return slices.Contains(set[flag], key)
		})
		if len(kept) > 0 {
			options = append(options, flag, strings.Join(kept, ","))
		}
	}
	return options, nil
}

// parseProfile answers the "key=value" settings of a configuration file by flag.
func parseProfile(text string) (map[string][]string, error) {
	settings := map[string][]string{}
	flag := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '[':
			name := strings.TrimSpace(strings.Trim(line, "[]"))
			if flag = sections[name]; flag == "" {
				return nil, fmt.Errorf("unknown section %q", line)
			}
		default:
			key, value, ok := strings.Cut(line, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if !ok || flag == "" || key == "" || value == "" || strings.ContainsAny(key+value, ", \t") {
				return nil, fmt.Errorf("unusable line %q", line)
			}
			at := flag
			if key == "nrext64" {
				at = "-i" // wherever the file has it, see xfsProfile
			}
			settings[at] = append(settings[at], key+"="+value)
		}
	}
	if len(settings) == 0 {
		return nil, fmt.Errorf("no settings")
	}
	return settings, nil
}

// keysSet answers the suboption keys the user's options set, by flag.
func keysSet(options []string) map[string][]string {
	keys := map[string][]string{}
	for i := 0; i < len(options); i++ {
		flag, value := options[i], ""
		if len(flag) > 2 {
			flag, value = flag[:2], flag[2:]
		} else if allowed["xfs"][flag].value != nil && i+1 < len(options) {
			i++
			value = options[i]
		}
		for part := range strings.SplitSeq(value, ",") {
			key, _, _ := strings.Cut(part, "=")
			keys[flag] = append(keys[flag], key)
		}
	}
	return keys
}
