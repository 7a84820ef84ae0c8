package settings

import "github.com/pillar-csi/pillar/crds/v1alpha1"

// CheckClass answers everything wrong with a class, with paths from "spec". store and
// protocol are what it refers to; nil skips the rules that need them.
func CheckClass(class v1alpha1.PillarStorageClassSpec, store *v1alpha1.PillarStoreSpec, protocol *v1alpha1.PillarProtocolSpec) Problems {
	return nil
}

// CheckStore answers everything wrong with a store, with paths from "spec".
func CheckStore(store v1alpha1.PillarStoreSpec) Problems { return nil }
