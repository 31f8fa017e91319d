package main

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"
	"sigs.k8s.io/randfill"
)

type comparison struct {
	Equal bool `json:"equal"`
}

var quantitySuffixes = []string{"", "m", "k", "M", "Ki", "Mi", "Gi", "u", "e3"}

func init() {
	register("randomTemplate", func(in struct {
		Seed      int64   `json:"seed"`
		NilChance float64 `json:"nilChance"`
	}) (*v1.PodTemplateSpec, error) {
		filler := randfill.NewWithSeed(in.Seed).NilChance(in.NilChance).NumElements(1, 2).MaxDepth(14).Funcs(
			func(text *string, c randfill.Continue) { *text = "v" + strconv.Itoa(c.Intn(5)) },
			func(quantity *resource.Quantity, c randfill.Continue) {
				*quantity = resource.MustParse(strconv.Itoa(c.Intn(4096)) + quantitySuffixes[c.Intn(len(quantitySuffixes))])
			},
			func(moment *metav1.Time, c randfill.Continue) { *moment = metav1.Unix(int64(c.Intn(1<<30)), 0) },
			func(*metav1.ManagedFieldsEntry, randfill.Continue) {},
		)
		var template v1.PodTemplateSpec
		filler.Fill(&template)
		return &template, nil
	})
	register("equalIgnoreHash", func(in [2]*v1.PodTemplateSpec) (comparison, error) {
		return comparison{deploymentutil.EqualIgnoreHash(in[0], in[1])}, nil
	})
}
