{{- define "penstock.name" -}}
{{- if contains "penstock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-penstock" (.Release.Name | trunc 41 | trimSuffix "-") }}{{ end }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: penstock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "penstock.name" .) }}
{{- end }}

{{/* drainMs for the drain, then 10 s to commit, leave the group and close. */}}
{{- define "penstock.graceSeconds" -}}
{{ add (div (add (int .Values.drainMs) 999) 1000) 10 }}
{{- end }}

{{/* Pods of workers, backfills and scenes. Called with a dict: root, args, env, component; resources, if not those of the
     workers. */}}
{{- define "penstock.podMetadata" -}}
labels:
  {{- include "penstock.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ .root.Values.config | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "penstock.podSpec" -}}
{{- $values := .root.Values }}
automountServiceAccountToken: false
serviceAccountName: {{ include "penstock.serviceAccount" .root }}
terminationGracePeriodSeconds: {{ include "penstock.graceSeconds" .root }}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65534
  runAsGroup: 65534
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: worker
    image: {{ $values.image.repository }}{{ if $values.image.digest }}@{{ $values.image.digest }}{{ else }}:{{ $values.image.tag | default .root.Chart.AppVersion }}{{ end }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: {{ toJson .args }}
    env:
      - {name: PENSTOCK_DELIVERY__DRAIN_MS, value: {{ int $values.drainMs | quote }}}
      # Probes and Prometheus ask by address, which needs no name in http.hosts.
      - {name: PENSTOCK_HTTP__HOST, value: 0.0.0.0}
      - {name: PENSTOCK_HTTP__PORT, value: "8900"}
      {{- range $name, $value := .env }}
      - {name: {{ $name }}, value: {{ $value | quote }}}
      {{- end }}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $values.existingSecret }}
    envFrom:
      - secretRef: {name: {{ . }}}
    {{- end }}
    ports:
      - {name: http, containerPort: 8900}
    # The page answers once Kafka has, or the worker ends after limits.start_ms.
    startupProbe:
      httpGet: {path: /healthz, port: http}
      periodSeconds: 5
      failureThreshold: 30
    livenessProbe:
      httpGet: {path: /healthz, port: http}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      httpGet: {path: /readyz, port: http}
      periodSeconds: 5
      timeoutSeconds: 5
    resources: {{- toYaml (.resources | default $values.resources) | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    volumeMounts:
      - {name: config, mountPath: /etc/penstock, readOnly: true}
      - {name: tmp, mountPath: /tmp}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "penstock.name" .root }}}
  - name: tmp
    emptyDir: {}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "penstock.selector" .root | nindent 8 }}
{{- end }}
{{- end }}

{{/* A Job's spec: its pods end by themselves (`run --until-end`). Called with the same dict as the two above. */}}
{{- define "penstock.job" -}}
parallelism: {{ .root.Values.backfill.kind | eq "Job" | ternary .root.Values.backfill.parallelism 1 }}
completions: {{ .root.Values.backfill.kind | eq "Job" | ternary .root.Values.backfill.parallelism 1 }}
backoffLimit: 6
# Codes 2 and 4: a setting is wrong, or a line has stopped. Another try would end the same way.
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {containerName: worker, operator: In, values: [2, 4]}
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
template:
  metadata: {{- include "penstock.podMetadata" . | nindent 4 }}
  spec:
    restartPolicy: Never
    {{- include "penstock.podSpec" . | nindent 4 }}
{{- end }}
