{{- /*
Change a DaemonSet, or the operator's Deployment, in place as the values say.

Takes object, container: its name, file: what is in files/ of it, values, and checksum: of ConfigMaps
that the values change.
*/ -}}
{{- define "device-plugins.workload" -}}
{{- $values := .values -}}
{{- $container := dict "name" .container -}}
{{- range list "args" "env" "resources" "volumeMounts" -}}
{{-   if hasKey $values . -}}{{- $_ := set $container . (get $values .) -}}{{- end -}}
{{- end -}}
{{- $pod := dict "containers" (list $container) -}}
{{- range list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" "volumes" -}}
{{-   if hasKey $values . -}}{{- $_ := set $pod . (get $values .) -}}{{- end -}}
{{- end -}}
{{- $metadata := dict -}}
{{- $annotations := merge (dict) ($values.podAnnotations | default dict) -}}
{{- with .checksum -}}{{- $_ := set $annotations "checksum/config" . -}}{{- end -}}
{{- with $annotations -}}{{- $_ := set $metadata "annotations" . -}}{{- end -}}
{{- $spec := dict "template" (dict "metadata" $metadata "spec" $pod) -}}
{{- with $values.updateStrategy -}}
{{-   $strategy := deepCopy . -}}
{{- /* Kubernetes takes only one of the two. */ -}}
{{-   if not (has (dig "rollingUpdate" "maxSurge" 0 . | toString) (list "0" "0%")) -}}
{{-     $_ := set $strategy "rollingUpdate" (merge (dict "maxUnavailable" 0) .rollingUpdate) -}}
{{-   end -}}
{{-   if eq .type "OnDelete" -}}{{- $_ := set $strategy "rollingUpdate" nil -}}{{- end -}}
{{-   $_ := set $spec "updateStrategy" $strategy -}}
{{- end -}}
{{- include "device-plugins.merge" (dict "place" .object "patch" (dict "spec" $spec) "keys" .file.keys) -}}
{{- $pod = .object.spec.template.spec -}}
{{- with $values.kubeletRoot -}}
{{-   $root := . -}}
{{-   range $pod.volumes -}}
{{-     $path := dig "hostPath" "path" "" . -}}
{{- /* The kubelet has /var/lib/kubelet/device-plugins built in, whatever its root. */ -}}
{{-     if and (hasPrefix "/var/lib/kubelet/" $path) (ne $path "/var/lib/kubelet/device-plugins") -}}
{{-       $_ := set .hostPath "path" (print $root (trimPrefix "/var/lib/kubelet" $path)) -}}
{{-     end -}}
{{-   end -}}
{{- /* The kubelet is told the path of a DRA driver's socket, so it is the same in the container. */ -}}
{{-   range $pod.containers -}}
{{-     range .volumeMounts -}}
{{-       if hasPrefix "/var/lib/kubelet/plugins/" .mountPath -}}
{{-         $_ := set . "mountPath" (print $root (trimPrefix "/var/lib/kubelet" .mountPath)) -}}
{{-       end -}}
{{-     end -}}
{{-     range .env -}}
{{-       if eq .name "DP_DRIVER_DIR" -}}
{{-         $_ := set . "value" (print $root (trimPrefix "/var/lib/kubelet" .value)) -}}
{{-       end -}}
{{-     end -}}
{{-   end -}}
{{- end -}}
{{- end -}}
