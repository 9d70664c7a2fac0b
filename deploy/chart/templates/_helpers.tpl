{{- define "headwater.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{- define "headwater.image" -}}
{{ required "image.repository: name an image that has Headwater and your features file" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels of one part, which never change; called with (dict "part" … "root" $). */}}
{{- define "headwater.selector" -}}
app.kubernetes.io/name: headwater
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "headwater.labels" -}}
{{ include "headwater.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* A migration comes before the release, hence an account of its own. */}}
{{- define "headwater.account" -}}
{{ .root.Values.serviceAccount.name | default (printf "%s%s" (include "headwater.name" .root) (eq .part "migration" | ternary "-migration" "")) }}
{{- end }}

{{/* Where the key of Prometheus and KEDA is. */}}
{{- define "headwater.metricsKey" -}}
name: {{ .Values.metrics.key.secret | default .Values.secret | quote }}, key: {{ .Values.metrics.key.name | quote }}
{{- end }}

{{/* What is the same in every pod. */}}
{{- define "headwater.pod" -}}
serviceAccountName: {{ include "headwater.account" . }}
automountServiceAccountToken: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: scratch
    emptyDir: {}
  {{- range $place, $file := .root.Values.files }}
  - name: files-{{ $place }}
    secret: {secretName: {{ $file.secret | quote }}}
  {{- end }}
{{- end }}

{{/* What is the same in every container: called with a secret, too. */}}
{{- define "headwater.container" -}}
image: {{ include "headwater.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef: {name: {{ .secret | quote }}}
volumeMounts:
  - {name: scratch, mountPath: /tmp}
  {{- range $place, $file := .root.Values.files }}
  - {name: files-{{ $place }}, mountPath: {{ $file.path | quote }}, readOnly: true}
  {{- end }}
{{- end }}

{{- define "headwater.variables" -}}
- {name: HEADWATER_ENV, value: production}
- {name: HEADWATER_FEATURES, value: {{ .Values.features | quote }}}
- {name: HEADWATER_HOME, value: /tmp/headwater}
- {name: HEADWATER_HTTP_HOST, value: 0.0.0.0}
- {name: HEADWATER_LOG_FORMAT, value: json}
{{- range $name, $value := .Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}
