{{/* Name of every object: that of the release, which names the chart. */}}
{{- define "refloat.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "refloat.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "refloat.name" .) .Values.serviceAccount.name }}
{{- else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* Labels that select the pods of a part: (dict "root" $ "part" "web"). */}}
{{- define "refloat.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "refloat.labels" -}}
{{ include "refloat.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The host name that the probes use: the console answers to its own names only. */}}
{{- define "refloat.host" -}}
{{- if not .Values.hosts }}
{{- fail "hosts is missing: set it to the host names of the console, such as hosts={refloat.example.com}" }}
{{- end }}
{{- first .Values.hosts | trimPrefix "." }}
{{- end }}

{{/* Environment of a program. In the pod, not in a ConfigMap: the preparation runs before the chart's objects exist. */}}
{{- define "refloat.environment" -}}
{{- $root := . }}
- name: REFLOAT_HOME
  value: /var/lib/refloat
# Prometheus reads the metrics of each pod by its address.
- name: POD_IP
  valueFrom:
    fieldRef:
      fieldPath: status.podIP
- name: REFLOAT_ALLOWED_HOSTS
  value: {{ printf "%s,$(POD_IP)" (join "," .Values.hosts) | quote }}
- name: REFLOAT_AUTHS
  value: {{ join "," .Values.auths | quote }}
- name: REFLOAT_HTTPS
  value: {{ .Values.ingress.enabled | quote }}
- name: REFLOAT_TRUSTED_PROXIES
  value: {{ ternary .Values.ingress.trustedProxies 0 .Values.ingress.enabled | quote }}
- name: REFLOAT_PUBLIC_URL
  value: {{ printf "%s://%s/" (ternary "https" "http" .Values.ingress.enabled) (include "refloat.host" .) | quote }}
{{- if .Values.tls.existingSecret }}
- name: REFLOAT_TLS_CA
  value: /etc/refloat/tls/ca.crt
- name: REFLOAT_TLS_CERT
  value: /etc/refloat/tls/tls.crt
- name: REFLOAT_TLS_KEY
  value: /etc/refloat/tls/tls.key
{{- end }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- range $name := list "REFLOAT_SECRET_KEY" "DATABASE_URL" "REDIS_URL" }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ required "existingSecret is missing: create a Secret with REFLOAT_SECRET_KEY, DATABASE_URL and REDIS_URL, and set existingSecret to its name" $root.Values.existingSecret }}
      key: {{ $name }}
{{- end }}
{{- end }}

{{/* A pod that runs one program: (dict "root" $ "part" "web" "command" (list …) "resources" … "probes" "…"). */}}
{{- define "refloat.pod" -}}
{{- $values := .root.Values }}
metadata:
  labels:
    {{- include "refloat.labels" . | nindent 4 }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if ne .part "prepare" }}
  serviceAccountName: {{ include "refloat.serviceAccount" .root }}
  {{- end }}
  # No part of Refloat calls the API of Kubernetes.
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 30
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .part "prepare" }}
  restartPolicy: OnFailure
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: {{ .part }}
      image: "{{ $values.image.repository }}:{{ default .root.Chart.AppVersion $values.image.tag }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      command: {{ toJson .command }}
      env:
        {{- include "refloat.environment" .root | nindent 8 }}
      {{- with .probes }}
      {{- . | nindent 6 }}
      {{- end }}
      resources:
        {{- toYaml .resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: state
          mountPath: /var/lib/refloat
        - name: tmp
          mountPath: /tmp
        {{- if $values.tls.existingSecret }}
        - name: tls
          mountPath: /etc/refloat/tls
          readOnly: true
        {{- end }}
  volumes:
    # Everything that lasts is in PostgreSQL and Redis.
    - name: state
      emptyDir: {}
    - name: tmp
      emptyDir: {}
    {{- if $values.tls.existingSecret }}
    - name: tls
      secret:
        secretName: {{ $values.tls.existingSecret }}
        defaultMode: 0440
    {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* A worker answers a ping over Redis. A round of polling may take a while, so it has five chances. */}}
{{- define "refloat.workerProbes" -}}
livenessProbe:
  exec:
    command: ["sh", "-c", "python -m celery --quiet -A dashboards.config.celery inspect ping --timeout 20 --destination {{ . }}@$HOSTNAME"]
  initialDelaySeconds: 60
  periodSeconds: 120
  timeoutSeconds: 40
  failureThreshold: 5
{{- end }}
