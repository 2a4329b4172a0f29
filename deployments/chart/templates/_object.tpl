{{- /*
Change any object in place as the values say: its namespace, labels, and what is about Prometheus.

Takes object, file: the plugin's file, and values.
*/ -}}
{{- define "device-plugins.object" -}}
{{- $object := .object -}}
{{- $old := .file.namespace -}}
{{- $namespace := .values.namespace | default $old -}}
{{- $metadata := $object.metadata -}}
{{- if eq $object.kind "Namespace" -}}
{{-   $_ := set $metadata "name" $namespace -}}
{{- else if $metadata.namespace -}}
{{-   $_ := set $metadata "namespace" $namespace -}}
{{- end -}}
{{- range $object.subjects -}}
{{-   if eq (get . "namespace") $old -}}{{- $_ := set . "namespace" $namespace -}}{{- end -}}
{{- end -}}
{{- with .values.labels -}}
{{-   $_ := set $metadata "labels" (merge (dict) . ($metadata.labels | default dict)) -}}
{{- end -}}
{{- $monitoring := .values.monitoring | default dict -}}
{{- if hasPrefix "monitoring.coreos.com/" $object.apiVersion -}}
{{-   with $monitoring.labels -}}
{{-     $_ := set $metadata "labels" (merge (dict) . ($metadata.labels | default dict)) -}}
{{-   end -}}
{{- end -}}
{{- if and $monitoring.namespace (eq $object.kind "NetworkPolicy") -}}
{{-   range $object.spec.ingress -}}
{{-     range .from -}}
{{-       with dig "namespaceSelector" "matchLabels" dict . -}}
{{-         $_ := set . "kubernetes.io/metadata.name" $monitoring.namespace -}}
{{-       end -}}
{{-     end -}}
{{-   end -}}
{{- end -}}
{{- end -}}
