package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the only version: served and stored.
var GroupVersion = schema.GroupVersion{Group: "pillar-csi.bhyoo.com", Version: "v1alpha1"}

// AddToScheme registers all kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&PillarAgent{}, &PillarAgentList{},
		&PillarStore{}, &PillarStoreList{},
		&PillarProtocol{}, &PillarProtocolList{},
		&PillarStorageClass{}, &PillarStorageClassList{},
		&PillarVolumeState{}, &PillarVolumeStateList{},
		&PillarVolumeReservation{}, &PillarVolumeReservationList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
