package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

type selection struct {
	Empty   bool   `json:"empty"`
	Matches []bool `json:"matches"`
}

func init() {
	register("selector", func(in struct {
		Selector *metav1.LabelSelector `json:"selector"`
		Labels   []labels.Set          `json:"labels"`
	}) (*selection, error) {
		selector, err := metav1.LabelSelectorAsSelector(in.Selector)
		if err != nil {
			return nil, err
		}
		out := selection{Empty: selector.Empty()}
		for _, set := range in.Labels {
			out.Matches = append(out.Matches, selector.Matches(set))
		}
		return &out, nil
	})
	register("scaledValue", func(in struct {
		Value   *intstr.IntOrString `json:"value"`
		Total   int                 `json:"total"`
		RoundUp bool                `json:"roundUp"`
	}) (int, error) {
		return intstr.GetScaledValueFromIntOrPercent(in.Value, in.Total, in.RoundUp)
	})
	register("compareResourceVersions", func(in [2]string) (int, error) {
		return resourceversion.CompareResourceVersion(in[0], in[1])
	})
}
