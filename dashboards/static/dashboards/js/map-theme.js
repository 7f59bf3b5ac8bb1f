/* Colours of the map besides those of the states: a canvas cannot use the custom properties of css/tokens.css. Pure. */

export const THEMES = {
  light: { page: "#ffffff", block: "#f5f7f8", line: "#dde2e6", dead: "#fbf4e6", deadLine: "#bd7d0a", stranding: "#fbeeec", strandingLine: "#a81e0b", ink: "#14191d", focus: "#0649e6" },
  dark: { page: "#0d1117", block: "#12181f", line: "#252e38", dead: "#221c0e", deadLine: "#ffcf55", stranding: "#2a1211", strandingLine: "#ec2313", ink: "#e8edf2", focus: "#6cb6ff" },
};
