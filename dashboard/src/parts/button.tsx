// Buttons: plain ones, and those that change something and so need a role.
import type { ComponentChildren, JSX } from "preact";
import type { Role } from "../api/types";
import { denied } from "../session";
import { Icon, type IconName } from "./icon";

interface ButtonProps {
  onClick?: () => void;
  icon?: IconName;
  kind?: "plain" | "primary" | "danger" | "quiet";
  disabled?: string | null | undefined;
  title?: string | undefined;
  label?: string;
  children?: ComponentChildren;
  type?: "button" | "submit";
  pressed?: boolean;
}

/** A button. `disabled` is the reason why it cannot be used. */
export function Button({ onClick, icon, kind = "plain", disabled, title, label, children, type = "button", pressed }: ButtonProps): JSX.Element {
  return (
    <button type={type} class={`button ${kind}`} onClick={onClick} disabled={!!disabled} title={disabled || title} aria-label={label} aria-pressed={pressed}>
      {icon ? <Icon name={icon} /> : null}
      {children}
    </button>
  );
}

/** A button that changes something. */
export function Action({ need = "operate", disabled, ...rest }: ButtonProps & { need?: Role | undefined }): JSX.Element {
  return <Button {...rest} disabled={denied(need) ?? disabled} />;
}
