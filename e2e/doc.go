// Package e2e tells user stories on a real cluster: about one file per story, each starting
// from the YAML in deploy/samples. A story looks at the machines with its own eyes (lvs,
// configfs, mount tables, sysfs), never through pillar.
//
// The stories are tests with the build tag "lab"; `make e2e` runs them inside the lab's
// namespaces. The demo (package demo) is a story told aloud.
package e2e
