{{- /*
Change any object in place as the values say: its namespace, labels, and what is about Prometheus.

Takes root, object, file: what is in files/ of it, and values.
*/ -}}
{{- define "device-plugins.object" -}}
{{- $object := .object -}}
{{- $old := .file.namespace -}}
{{- $namespace := .values.namespace | default .root.Release.Namespace -}}
{{- $metadata := $object.metadata -}}
{{- if eq $object.kind "Namespace" -}}
{{-   $_ := set $metadata "name" $namespace -}}
{{- else if eq (get $metadata "namespace") $old -}}
{{-   $_ := set $metadata "namespace" $namespace -}}
{{- end -}}
{{- range $object.subjects -}}
{{-   if eq (get . "namespace") $old -}}{{- $_ := set . "namespace" $namespace -}}{{- end -}}
{{- end -}}
{{- $labels := merge (include "device-plugins.labels" .root | fromYaml) (.values.labels | default dict) -}}
{{- $labels = merge (dict) $labels ($metadata.labels | default dict) (dict "app.kubernetes.io/version" .root.Chart.AppVersion) -}}
{{- $_ := set $metadata "labels" $labels -}}
{{- $template := dig "spec" "template" "metadata" dict $object -}}
{{- if $template -}}
{{-   $_ := set $template "labels" (merge (dict) $template.labels $labels) -}}
{{- end -}}
{{- $monitoring := .values.monitoring | default dict -}}
{{- if hasPrefix "monitoring.coreos.com/" $object.apiVersion -}}
{{-   with $monitoring.labels -}}
{{-     $_ := set $metadata "labels" (merge (dict) . $labels) -}}
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
{{- /* Labels of everything in a release, pods too; they are in no selector. Takes the root. */ -}}
{{- define "device-plugins.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}
