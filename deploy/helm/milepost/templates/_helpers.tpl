{{- define "milepost.name" -}}
{{- $long := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- .Values.fullnameOverride | default (contains .Chart.Name .Release.Name | ternary .Release.Name $long) | trunc 56 | trimSuffix "-" -}}
{{- end }}

{{- define "milepost.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "milepost.labels" -}}
{{ include "milepost.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "milepost.account" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "milepost.name" .) "default") -}}
{{- end }}

{{- define "milepost.tokenSecret" -}}
{{- .Values.admin.tokenSecret.name | default (printf "%s-admin" (include "milepost.name" .)) -}}
{{- end }}

{{- define "milepost.image" -}}
{{- with .Values.image -}}
{{- $name := required "image.repository: set the image of the application, for instance registry.example/shop" .repository -}}
{{- if .digest -}}
{{ $name }}@{{ .digest }}
{{- else -}}
{{ $name }}:{{ required "image.tag: set the tag of the image, or image.digest" .tag }}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Preparation for the end, the drain and 5 s for the last lines of the log. */ -}}
{{- define "milepost.grace" -}}
{{- $least := add .Values.preStopSeconds .Values.drainTimeoutSeconds 5 | int -}}
{{- $set := int .Values.terminationGracePeriodSeconds -}}
{{- if and $set (lt $set $least) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is less than preStopSeconds + drainTimeoutSeconds + 5 = %d: Kubernetes would kill pods that still answer requests" $set $least) -}}
{{- end -}}
{{- $set | default $least -}}
{{- end }}

{{- /* What belongs to the chart must not be in `config`, and no variable may override it. */ -}}
{{- define "milepost.checks" -}}
{{- $top := regexReplaceAll "(?ms)^[ \\t]*\\[.*" .Values.config "" -}}
{{- range $key, $value := dict "app" "app" "bind" "port" "processes" "processes" "workers" "processes" "threads" "threads" "drain_timeout" "drainTimeoutSeconds" "graceful_timeout" "drainTimeoutSeconds" "admin_bind" "admin.port" "admin_token_file" "admin.tokenSecret" "spool_dir" "spoolSize" -}}
{{- if regexMatch (printf "(?m)^[ \\t]*\"?%s\"?[ \\t]*=" $key) $top -}}
{{- fail (printf "config: `%s` is set by the chart: use the value `%s`" $key $value) -}}
{{- end -}}
{{- end -}}
{{- range .Values.env -}}
{{- if hasPrefix "MILEPOST_" .name -}}
{{- fail (printf "env: `%s` would override the configuration: set it in `config`" .name) -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.port) (int .Values.admin.port) -}}
{{- fail "admin.port: must differ from port" -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if and .enabled (lt (int .maxReplicas) (int .minReplicas)) -}}
{{- fail (printf "autoscaling.maxReplicas: %d is less than minReplicas, %d" (int .maxReplicas) (int .minReplicas)) -}}
{{- end -}}
{{- if and .enabled .targetCpuPercent (not (dig "requests" "cpu" "" $.Values.resources)) (not (dig "limits" "cpu" "" $.Values.resources)) -}}
{{- fail "autoscaling.targetCpuPercent: set resources.requests.cpu, or 0 for autoscaling without CPU" -}}
{{- end -}}
{{- if and .enabled (eq .source "prometheus") (not .prometheus.serverAddress) -}}
{{- fail "autoscaling.prometheus.serverAddress: set the address of Prometheus, for instance http://prometheus.monitoring.svc:9090" -}}
{{- end -}}
{{- end -}}
{{- end }}
